# Changes nothing.
true
