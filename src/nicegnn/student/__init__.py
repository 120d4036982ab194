"""The student: a small network that predicts scores and their errors in one pass of the target."""
