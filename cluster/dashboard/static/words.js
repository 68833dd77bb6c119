// Numbers in the words of words.py, for the charts' axes.
export function size(value) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(value) < 1000) return `${+value.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    value /= 1000;
  }
  return `${+value.toFixed(1)} TB`;
}

export function seconds(value) {
  if (value < 60) return `${+value.toFixed(1)} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 60 ? `${minutes} min ${String(Math.round(value % 60)).padStart(2, "0")} s` : `${(value / 3600).toFixed(1)} h`;
}

export function latency(value) {
  return value >= 1 ? `${+value.toFixed(2)} s` : `${+(value * 1000).toFixed(2)} ms`;
}
