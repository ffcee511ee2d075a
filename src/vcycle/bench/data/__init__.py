"""How many clips a second this machine gets out of videos: as they are, prepared, and through the loader."""
