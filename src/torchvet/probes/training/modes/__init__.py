"""In which mode the parts of a model are while they are trained."""
