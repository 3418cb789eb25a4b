"""Tasks: what a model is trained for, and what people can do with it afterwards."""
