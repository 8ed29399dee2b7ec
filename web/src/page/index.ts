// What main.ts may use of the live page.
export { mountPage } from "./page.ts";
