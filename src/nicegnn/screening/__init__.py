"""From a file of molecules to tables, pictures and a gallery."""
