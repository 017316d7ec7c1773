# Completion of sape2 for bash. Source it, or put it into ~/.local/share/bash-completion/completions
# under the name sape2. Commands and options come from the program's own help, so they are never out
# of date; what was asked once is kept for the session.

declare -gA _sape2_known=()

# _sape2_ask KEY COMMAND…: the command's output, asked for once.
_sape2_ask() {
  local key=$1
  shift
  [[ -v _sape2_known[$key] ]] || _sape2_known[$key]=$("$@" 2>/dev/null)
  printf '%s\n' "${_sape2_known[$key]}"
}

_sape2_commands() {
  _sape2_ask help "$1" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'
}

_sape2_options() {
  _sape2_ask "help ${*:2}" "$@" --help | grep -oE -- '(^|[ ,])--?[a-z][a-z0-9-]*' | tr -d ' ,'
}

# The names under a heading of `sape2 info`.
_sape2_offers() {
  _sape2_ask info "$1" info | sed -n "/^$2/,/^\$/s/^  \([a-z][a-z0-9-]*\) .*/\1/p"
}

_sape2() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]}
  local before=${COMP_WORDS[COMP_CWORD - 1]} command= benchmark= word words=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == -* ]] || { command=$word; break; }
  done
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $command == bench && ( $word == attention || $word == exchange || $word == infer || $word == train ) ]] && benchmark=$word
  done
  case $before in
    --encoding | --encodings | --baseline) words=$(_sape2_offers "$program" Encodings) ;;
    --model) words=$(_sape2_offers "$program" Models) ;;
    --data) words=$(_sape2_ask data "$program" data list | sed -n 's/^  \([a-z][a-z0-9-]*\) .*/\1/p') ;;
    --recipe) words="paper strong quick segmentation" ;;
    --task) words="classification segmentation" ;;
    --device) words="cpu cuda" ;;
    --dtypes) words="float32 bfloat16 float16" ;;
    --passes) words="forward forward+backward" ;;
    --paper) words="table1 table2" ;;
    --split) words="test train" ;;
    --runtime) words="libtorch infer" ;;
    --weights) words="bfloat16 float32" ;;
    --probes) words="sizes scale translation region gates" ;;
    --tune) words="learning-rate= weight-decay= clip-norm=" ;;
    --what) words="bias bias-x bias-y gates positions attention" ;;
    --colours) words="green cividis" ;;
    *)
      if [[ -z $command ]]; then
        words="$(_sape2_commands "$program") --help --version --threads"
      elif [[ $current == -* ]]; then
        words=$(_sape2_options "$program" "$command" $benchmark)
      elif [[ $command == bench && -z $benchmark ]]; then
        words="attention exchange infer train"
      elif [[ $command == data ]]; then
        words="list get info cifar10 cifar100 fashion-mnist oxford-pets shapes"
      fi
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

# Where nothing of ours fits, file names do.
complete -o default -F _sape2 sape2
