"""Which tests of a file were selected: what one run of the suites is to judge for all of them."""


def parameters(request):
    """The parameters of each selected test of the file that asks, where it has some."""
    here = (item for item in request.session.items if item.path == request.path)
    return [item.callspec.params for item in here if hasattr(item, "callspec")]
