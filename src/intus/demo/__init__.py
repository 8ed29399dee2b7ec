"""The main job in one command: a network trains, every layer is scored as it does, its units are asked."""
