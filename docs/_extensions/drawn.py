"""Pictures of gallery scripts that were made without pyplot, as this package draws its own: figures in variables."""

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def _get_sg_image_scraper():
    return scrape


def scrape(block, block_vars, gallery_conf):
    paths = []
    for figure in block_vars["example_globals"].values():
        if isinstance(figure, Figure) and not hasattr(figure, "number"):  # pyplot numbers its own
            paths.append(next(block_vars["image_path_iterator"]))
            figure.savefig(paths[-1], dpi=200)
            figure.number = 0  # shown once
    return figure_rst(paths, gallery_conf["src_dir"])
