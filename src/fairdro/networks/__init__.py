"""Networks of any kind: a loss for any training loop, Hugging Face's Trainer, and whole runs on images and texts."""
