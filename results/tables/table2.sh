#!/usr/bin/env bash
# Table 2: many seeds, paired. vit-compact, recipe strong with one pass an epoch, 50 epochs, the learning rate tuned.
# usage: results/tables/table2.sh DATA FOLDER [ENCODINGS [OPTION...]]
#   DATA        cifar10 or cifar100
#   FOLDER      where runs and reports go; the same command goes on where it was cut off
#   ENCODINGS   some rows only; `others` for three seeds of all rows that are not in the table proper
#               (default: the five rows of the table, ten seeds, with differences to open gates)
#   OPTION      further options of `sape2 compare`, e.g. --seed 5 --seeds 5
set -euo pipefail
data=${1:?usage: table2.sh DATA FOLDER [ENCODINGS [OPTION...]]}
folder=${2:?usage: table2.sh DATA FOLDER [ENCODINGS [OPTION...]]}
shift 2
others='rpe,rpe-shaw,rpe-decomposed,rope,rope+ape,rope2d+ape,rope2d-mixed,cope,cope+ape,lape,sinusoidal2d'
others+=',sape2-q+ape,sape2-qk,sape2-rel-q,sape2-rel-qk'
if [ $# -eq 0 ]; then
  rows=(--encodings 'sape2-rel-k,sape2-rel-k[gates=open],rope2d,ape,sape2-k+ape'
        --baseline 'sape2-rel-k[gates=open]' --seeds 10)
elif [ "$1" = others ]; then
  rows=(--encodings "$others" --seeds 3)
  shift
else
  rows=(--encodings "$1" --seeds 10)
  shift
fi
"${SAPE2:-sape2}" compare "${rows[@]}" --data "$data" --model vit-compact --recipe strong --passes 1 \
  --batch-size 256 --epochs 50 --tune learning-rate=2e-3,1e-3,5e-4 --tune-epochs 15 \
  --evaluate-epochs 10 --log-steps 65 --device cuda --precision bfloat16 --out "$folder" "$@"
