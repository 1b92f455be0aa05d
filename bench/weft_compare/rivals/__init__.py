"""The programs measured: how each is started, and how what it prints is read."""
