"""Judge the candidates of a run by checks in fresh containers, and rank them by evidence."""
