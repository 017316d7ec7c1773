#!/usr/bin/env bash
# Table 1: the paper's size and length. ViT-Small, recipe paper, 400 epochs, the learning rate tuned for each encoding.
# usage: results/tables/table1.sh DATA FOLDER [ENCODINGS [OPTION...]]
#   DATA        cifar10 or cifar100
#   FOLDER      where runs and reports go; the same command goes on where it was cut off
#   ENCODINGS   some rows only, e.g. 'ape,sape2-rel-k' (default: all of the table, with differences to ape)
#   OPTION      further options of `sape2 compare`, e.g. --seed 1 for a second seed
set -euo pipefail
data=${1:?usage: table1.sh DATA FOLDER [ENCODINGS [OPTION...]]}
folder=${2:?usage: table1.sh DATA FOLDER [ENCODINGS [OPTION...]]}
shift 2
if [ $# -gt 0 ]; then
  rows=(--encodings "$1")
  shift
elif [ "$data" = cifar100 ]; then
  rows=(--encodings 'ape,rope2d+ape,cope+ape,sape2-k+ape,sape2-rel-k' --baseline ape)
else
  rows=(--encodings 'ape,rope2d,rope2d+ape,cope+ape,sape2-k,sape2-k+ape,sape2-q+ape,sape2-rel-k' --baseline ape)
fi
"${SAPE2:-sape2}" compare "${rows[@]}" --data "$data" --model vit-small --recipe paper \
  --tune learning-rate=1e-3,5e-4,3e-4 --tune-epochs 15 \
  --evaluate-epochs 10 --log-steps 100 --device cuda --precision bfloat16 --out "$folder" "$@"
