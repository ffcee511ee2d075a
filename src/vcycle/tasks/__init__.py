"""What is learned and how it is judged: loss, metrics and evaluation protocol of each task."""
