#!/usr/bin/env bash
# Table 3: long training, from which the shipped models come. vit-compact, recipe strong, 100 epochs of three passes.
# usage: results/tables/table3.sh DATA FOLDER [ENCODINGS [OPTION...]]
#   DATA        cifar10 or cifar100
#   FOLDER      where runs and reports go; the same command goes on where it was cut off
#   ENCODINGS   some rows only (default: the four rows of the table, with differences to ape)
#   OPTION      further options of `sape2 compare`
set -euo pipefail
data=${1:?usage: table3.sh DATA FOLDER [ENCODINGS [OPTION...]]}
folder=${2:?usage: table3.sh DATA FOLDER [ENCODINGS [OPTION...]]}
shift 2
if [ $# -gt 0 ]; then
  rows=(--encodings "$1")
  shift
else
  rows=(--encodings 'ape,rope2d,sape2-k+ape,sape2-rel-k' --baseline ape)
fi
"${SAPE2:-sape2}" compare "${rows[@]}" --seeds 3 --data "$data" --model vit-compact --recipe strong \
  --batch-size 256 --tune learning-rate=2e-3,1e-3,5e-4 --tune-epochs 15 \
  --evaluate-epochs 10 --log-steps 65 --device cuda --precision bfloat16 --out "$folder" "$@"
