"""Places: files go in, steps run there, and one harvest comes out."""
