"""HTTP that waits for no client for ever: neither for a request to come, nor for an answer to be read.

uvicorn keeps a connection open as long as a client sends a byte now and then. Here a request must have come whole
within `receiving` seconds of its first byte, and what is sent must be read within `sending` seconds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mallang.serving.guard import Limits

LATE = 0.25
"""Seconds that a deadline may be looked at too late; beyond that the server was busy itself, and waits once more."""
GRACE = 1.0
"""Seconds that the application has to answer a slow sender itself before the connection is closed."""
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Impatient(H11Protocol):
    """A connection with deadlines."""

    limits: Limits
    coming: asyncio.TimerHandle | None = None
    due: float = 0.0
    """When the request that is waited for must have come."""
    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # any byte that the client does not take counts as slow reading
        self.expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self.coming = stopped(self.coming)
        self.reading = stopped(self.reading)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a request has come; the rest must follow in time."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.expect()
        else:
            self.coming = stopped(self.coming)

    def on_response_complete(self) -> None:
        """The next request may take its time to begin: uvicorn closes a connection on which none does."""
        super().on_response_complete()
        if self.conn.their_state is not h11.SEND_BODY:
            self.coming = stopped(self.coming)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self.expect()

    def expect(self) -> None:
        """Wait for a whole request, if nothing waits for it yet."""
        if self.coming is None:
            self.due = self.loop.time() + self.limits.receiving + GRACE
            self.coming = self.loop.call_later(self.limits.receiving + GRACE, self.give_up)

    def give_up(self) -> None:
        """Close a connection on which no whole request has come."""
        if self.transport.is_closing():
            return
        if self.loop.time() - self.due > LATE:  # what has come by now may still have to be read
            self.coming = None
            self.expect()
            return
        if self.conn.our_state is h11.IDLE:
            self.transport.write(TOO_SLOW)
            self.transport.close()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent to."""
        super().pause_writing()
        if self.reading is None:
            self.reading = self.loop.call_later(self.limits.sending, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self.reading = stopped(self.reading)


def stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Stop a timer; nothing takes its place."""
    if timer is not None:
        timer.cancel()
    return None


def impatient(limits: Limits) -> type[Impatient]:
    """Connections with these deadlines."""
    return type("Impatient", (Impatient,), {"limits": limits})
