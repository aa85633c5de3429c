"""One HTML page about one or several runs, from the files in their folders."""
