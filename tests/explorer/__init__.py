"""The explorer: every order of events, with the code that ships. README.md in this folder says what is proved."""
