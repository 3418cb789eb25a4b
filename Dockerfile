# A server for trained runs, on a CPU:   docker build -t mallang .
#   docker run -e MALLANG_TOKEN=… -v ./runs:/runs:ro -p 127.0.0.1:8000:8000 mallang /runs/transformer-miniworld
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /mallang
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" torch \
 && pip install --no-cache-dir --constraint constraints.txt '.[serve]' \
 && useradd --system --home /nonexistent --shell /usr/sbin/nologin mallang
USER mallang
ENV MALLANG_CACHE=/tmp/mallang PYTHONUNBUFFERED=1
EXPOSE 8000
# The exec form, so that SIGTERM reaches the server: it answers what it has taken in, then stops.
ENTRYPOINT ["mallang", "serve", "--host", "0.0.0.0"]
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
