"""The speed figures: each is a ratio of two things measured in turn in one run, since machines are shared and noisy."""
