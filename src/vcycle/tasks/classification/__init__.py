"""What the tasks share that tell classes apart: recognition, of clips, and images, which are clips of one frame."""
