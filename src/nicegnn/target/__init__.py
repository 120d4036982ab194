"""The model to be explained: its layers, its calls, its output, its training."""
