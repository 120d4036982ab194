"""The commands `nicegnn lab ...`: parse, call the laboratory, print."""
