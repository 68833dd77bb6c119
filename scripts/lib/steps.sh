# Sourced by scripts/check, scripts/test and .ci/run: steps with a name, a time budget and a line that tells both.

# Thousands of processes are started: without files of bytecode each of them compiles the product, pytest all tests, too.
unset PYTHONDONTWRITEBYTECODE

say() { printf '== %s\n' "$*"; }

# step NAME BUDGET_SECONDS COMMAND...  Runs the command, tells its time, returns its status. Leaves the time in step_seconds.
step() {
    local name=$1 budget=$2 begin=$EPOCHREALTIME status=0
    shift 2
    say "$name (budget $budget s)"
    "$@" || status=$?
    # EPOCHREALTIME has a comma in some locales; without its separator it is microseconds.
    step_seconds=$(((${EPOCHREALTIME/[.,]/} - ${begin/[.,]/}) / 1000000))
    local verdict="ok"
    ((step_seconds <= budget)) || verdict="OVER BUDGET"
    ((status == 0)) || verdict="FAILED"
    say "$name: $verdict, $step_seconds s of $budget s"
    return "$status"
}
