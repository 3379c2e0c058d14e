"""The mesh in memory: what users wrote (`config`), what follows from it (`views`), and the words for both."""
