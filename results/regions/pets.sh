#!/usr/bin/env bash
# Segmentation of Oxford-IIIT Pet from scratch: vit-compact, patches of 8 at 128×128, recipe segmentation, five seeds, the learning
# rate tuned for each encoding on training images that are held out.
# usage: results/regions/pets.sh FOLDER [ENCODINGS [OPTION...]]
#   FOLDER      where runs and reports go; the same command goes on where it was cut off
#   ENCODINGS   some rows only (default: the five rows of the table, with differences to ape)
#   OPTION      further options of `sape2 compare`, e.g. --root FOLDER for the data set
# Estimated, not measured: 2 to 3 minutes a run, about an hour and a half for all on one H200 (README.md in this folder).
set -euo pipefail
folder=${1:?usage: pets.sh FOLDER [ENCODINGS [OPTION...]]}
shift
if [ $# -gt 0 ]; then
  rows=(--encodings "$1")
  shift
else
  rows=(--encodings 'ape,rope2d,sape2-k+ape,sape2-rel-k[gates=open],sape2-rel-k' --baseline ape)
fi
"${SAPE2:-sape2}" compare "${rows[@]}" --task segmentation --data oxford-pets --image-size 128 --patch-size 8 \
  --model vit-compact --recipe segmentation --seeds 5 --tune learning-rate=2e-3,1e-3,5e-4 --tune-epochs 20 \
  --log-steps 57 --device cuda --precision bfloat16 --out "$folder" "$@"
