"""What is on a picture: its words, and the points of its lines."""

from meshproof.plots.pictures import draw_files


def picture(name, *paths):
    """The picture of a name."""
    return next(each for each in draw_files(paths)[0] if each.name == name)


def texts(panel):
    """Everything that a panel has in words."""
    legend = panel.get_legend()
    words = [panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel()]
    words += [tick.get_text() for tick in (*panel.get_xticklabels(), *panel.get_yticklabels())]
    return words + [text.get_text() for text in (*panel.texts, *(legend.get_texts() if legend else ()))]


def lines(panel):
    """The points of each line by its label."""
    handles, labels = panel.get_legend_handles_labels()
    drawn = [getattr(handle, "lines", [handle])[0] for handle in handles]
    return {
        label: [list(map(float, axis)) for axis in line.get_data()] for line, label in zip(drawn, labels, strict=True)
    }
