"""Rules of coordinator methods for the compiled engine, one file per method."""
