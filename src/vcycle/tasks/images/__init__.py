"""Images: classification of clips of one frame, with progressive resizing."""
