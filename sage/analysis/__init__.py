"""What switching a reading does; all other analyses stand with their exhibits."""
