"""Tests of what is claimed about privacy: the check of transcripts and the distinguishing game."""
