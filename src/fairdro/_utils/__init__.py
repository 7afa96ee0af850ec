"""What every layer may use: files, progress, random streams, Markdown, optional packages."""
