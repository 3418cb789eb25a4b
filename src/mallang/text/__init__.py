"""Text processing: tokenizers, Unicode, Hangul."""
