#!/usr/bin/env bash
# The second ground: classification of CIFAR with patches of 2, a 16×16 grid. vit-compact, recipe strong, the rows of pets.sh.
# usage: results/regions/cifar.sh DATA FOLDER [ENCODINGS [OPTION...]]
#   DATA        cifar10 or cifar100
#   FOLDER      where runs and reports go; the same command goes on where it was cut off
#   ENCODINGS   some rows only (default: the five rows of the table, with differences to ape)
#   OPTION      further options of `sape2 compare`
# Estimated, not measured: 5 to 15 minutes a run, 3 to 6 hours for all on one H200 (README.md in this folder).
set -euo pipefail
data=${1:?usage: cifar.sh DATA FOLDER [ENCODINGS [OPTION...]]}
folder=${2:?usage: cifar.sh DATA FOLDER [ENCODINGS [OPTION...]]}
shift 2
if [ $# -gt 0 ]; then
  rows=(--encodings "$1")
  shift
else
  rows=(--encodings 'ape,rope2d,sape2-k+ape,sape2-rel-k[gates=open],sape2-rel-k' --baseline ape)
fi
"${SAPE2:-sape2}" compare "${rows[@]}" --data "$data" --patch-size 2 --model vit-compact --recipe strong --passes 1 \
  --batch-size 128 --seeds 5 --evaluate-epochs 10 --log-steps 100 --device cuda --precision bfloat16 --out "$folder" "$@"
