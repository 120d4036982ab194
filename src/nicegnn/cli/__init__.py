"""The command `nicegnn`: parses, calls the library, prints."""
