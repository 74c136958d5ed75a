// What k6 has beside its modules and @types/k6 does not know.
declare const console: Record<"log" | "info" | "warn" | "error", (...values: unknown[]) => void>;
