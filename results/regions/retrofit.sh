#!/usr/bin/env bash
# A trained ape model that gets another encoding, after 0, 1, 5 and 20 epochs, against training from scratch for as long.
# usage: results/regions/retrofit.sh FROM DATA FOLDER [OPTION...]
#   FROM      what the ape model is trained on: cifar10, cifar100
#   DATA      what it is adapted to: cifar10, cifar100, oxford-pets
#   FOLDER    where runs and reports go; the same command goes on where it was cut off
#   OPTION    further options of every `sape2 compare`, e.g. --seeds 1 for a first look
#   BASE=MODEL in the environment takes that model file instead of training one on FROM
#
# vit-compact, recipe strong with one pass and batches of 256. The ape model is trained for 50 epochs, once; its five
# seeds below are those of the fine-tuning. Each row chooses its learning rate on held-out images, from the same three.
# The column "before training" of every report is epoch 0. results/regions/retrofit_table.py FOLDER puts all in one table.
#
# Time on one H200, estimated from 0.6 s an epoch of vit-compact on CIFAR (results/encodings.md) and 3 s to start a run:
# cifar100 → cifar10 about 25 min (base model 0.5, retrofit 13, scratch 11); the same for cifar10 → cifar10; oxford-pets
# (128×128 pixels, patches of 8) about 20 min. Nothing of this was run yet.
set -euo pipefail
usage="usage: retrofit.sh FROM DATA FOLDER [OPTION...]"
from=${1:?$usage}
data=${2:?$usage}
folder=${3:?$usage}
shift 3
sape2=${SAPE2:-sape2}
common=(--recipe strong --passes 1 --batch-size 256 --log-steps 65 --device cuda --precision bfloat16)
size=()
[ "$data" != oxford-pets ] || size=(--image-size 128 --patch-size 8)

base=${BASE:-$folder/base/last.safetensors}
if [ -z "${BASE:-}" ] && [ -e "$folder/base/config.json" ]; then
  "$sape2" train --resume "$folder/base"
elif [ -z "${BASE:-}" ]; then
  "$sape2" train --data "$from" --model vit-compact --encoding ape --epochs 50 --evaluate-epochs 10 \
    "${common[@]}" --out "$folder/base"
fi
for epochs in 1 5 20; do
  tune=(--tune learning-rate=1e-3,3e-4,1e-4 --tune-epochs "$epochs")
  "$sape2" compare --init "$base" \
    --encodings 'ape,sape2-k+ape,sape2-rel-k+ape,sape2-rel-k' --baseline ape --seeds 5 \
    --data "$data" "${size[@]}" --epochs "$epochs" "${common[@]}" "${tune[@]}" \
    --out "$folder/retrofit-$epochs" "$@"
  "$sape2" compare --encodings 'ape,sape2-k+ape,sape2-rel-k' --baseline ape --seeds 5 --model vit-compact \
    --data "$data" "${size[@]}" --epochs "$epochs" "${common[@]}" "${tune[@]}" \
    --out "$folder/scratch-$epochs" "$@"
done
