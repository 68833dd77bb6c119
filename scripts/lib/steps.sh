# Sourced by scripts/check, scripts/test and .ci/run: steps with a name, a time budget and a line that tells both.

# Thousands of processes are started: without files of bytecode each of them compiles the product, pytest all tests, too.
unset PYTHONDONTWRITEBYTECODE

say() { printf '== %s\n' "$*"; }

# Sets cpu_seconds to the CPU time of all commands of this shell that have ended. (In $(…) `times` would tell of nobody.)
count_cpu() {
    local lines parts file
    file=$(mktemp)
    times >"$file"
    mapfile -t lines <"$file"
    rm "$file"
    IFS=' ms.' read -ra parts <<<"${lines[1]}" # 1m2.345s 0m6.789s
    cpu_seconds=$((parts[0] * 60 + 10#${parts[1]} + parts[3] * 60 + 10#${parts[4]}))
}

# step NAME BUDGET_SECONDS COMMAND...  Runs the command, tells its time, returns its status. Leaves the time in step_seconds.
step() {
    local name=$1 budget=$2 begin=$EPOCHREALTIME status=0 cpu_before
    shift 2
    count_cpu
    cpu_before=$cpu_seconds
    say "$name (budget $budget s)"
    "$@" || status=$?
    # EPOCHREALTIME has a comma in some locales; without its separator it is microseconds.
    step_seconds=$(((${EPOCHREALTIME/[.,]/} - ${begin/[.,]/}) / 1000000))
    local verdict="ok"
    ((step_seconds <= budget)) || verdict="OVER BUDGET"
    ((status == 0)) || verdict="FAILED"
    count_cpu
    say "$name: $verdict, $step_seconds s of $budget s ($((cpu_seconds - cpu_before)) s of CPU)"
    return "$status"
}
