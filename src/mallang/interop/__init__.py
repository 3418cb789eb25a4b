"""Import and export: ARPA, CTranslate2, ONNX, Hugging Face."""
