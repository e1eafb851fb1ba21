"""What is kept on disk: files replaced in one step, locks among processes, SQLite files with a version, text that all hold."""
