"""Second opinions: other explainers that a user may want beside NICE, one method per file."""
