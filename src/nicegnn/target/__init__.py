"""The model to be explained: its layers, calling it, reading it, training it."""
