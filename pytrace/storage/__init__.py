"""What is kept on disk: files replaced in one step."""
