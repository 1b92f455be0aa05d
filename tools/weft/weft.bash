# Completion of `weft` for bash. Commands and options come from its own help texts, so that they are
# always those of the installed version.

_weft_options() { # _weft_options [COMMAND]
  weft "$@" --help 2>/dev/null | grep -oE '(^| |,)--?[a-zA-Z0-9][a-z0-9-]*' | tr -d ' ,' | sort -u
}

_weft_commands() {
  weft --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'
}

_weft_values() { # _weft_values OPTION
  case "$1" in
    --op) echo write read send write-imm fetch-add cmp-swap connect ;;
    --transport) echo rdma tcp ;;
    --crc | --markers) echo on off ;;
    --fpdu) echo auto mss 16k 64k ;;
    --like | --known) echo siw rxe connectx-5 connectx-3 e810 qedr ;;
    --path) [[ " ${COMP_WORDS[*]} " == *" selftest "* ]] && echo tcp ring || echo auto tcp ring ;;
    --mode) echo poll sleep ;;
    --tcp-mode) echo raw copy ;;
    --log) echo off error warning info debug trace ;;
    --progress) echo auto thread ;;
    --real-cm) echo auto on off ;;
    --preset) echo main ;;
    --listen | --port) echo ;; # no names of files
    --peer) compgen -A hostname ;;
    --congestion | --tcp-congestion)
      echo keep same
      cat /proc/sys/net/ipv4/tcp_available_congestion_control 2>/dev/null
      ;;
    --config)
      weft info --json 2>/dev/null | sed -n 's/.*"key": "\([a-z_]*\)".*/\1=/p'
      compopt -o nospace
      ;;
    *) return 1 ;;
  esac
}

_weft() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
  local command="" at words
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    if [[ "${COMP_WORDS[at]}" == -- && "$command" == run ]]; then
      # From here on the command line is another program's.
      if declare -F _command_offset >/dev/null; then
        _command_offset $((at + 1))
      else
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
      fi
      return
    fi
    [[ -n "$command" || "${COMP_WORDS[at]}" == -* ]] || command="${COMP_WORDS[at]}"
  done
  if words="$(_weft_values "$previous")"; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  elif [[ -z "$command" && "$current" != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_weft_commands)" -- "$current")
  elif [[ "$current" == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_weft_options ${command:+"$command"})" -- "$current")
  elif [[ "$command" == stat ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(pgrep -u "$(id -u)" 2>/dev/null)" -- "$current")
  elif [[ "$command" == perf || "$command" == ping || "$command" == selftest ]]; then
    mapfile -t COMPREPLY < <(compgen -A hostname -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -F _weft weft
