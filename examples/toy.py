"""Figure 2 of the paper: two bits for four classes in the plane.

200 points on the four arms of a pinwheel, 30 of them drawn as inducing points. The arms wind around each other, so each
of the two bits has to be a curve.

    python examples/toy.py [--output figures/toy]
"""

import argparse

from gphash.evaluation import canvas
from gphash.paper import illustrations


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Draw figure 2 of the paper: two bits for four classes in the plane.")
    parser.add_argument("--output", default="figures/toy", help="where to write, without .svg and .png (figures/toy)")
    parser.add_argument("--seed", type=int, default=0, help="of data and training (0)")
    options = parser.parse_args(arguments)

    X, y, trained = illustrations.train_toy(options.seed)
    codes, share = illustrations.toy_words(trained, y)
    print(f"codes of the four classes: {', '.join(codes)}; {share:.1%} of {len(X)} points have the code of their class")
    if len(set(codes)) < 4:
        print("two classes share a code: try another --seed")
    for path in canvas.save(illustrations.toy(X, y, trained), options.output):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
